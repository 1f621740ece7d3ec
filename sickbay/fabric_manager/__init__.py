"""Reads what the fabric manager, its unit of systemd and IMEX print, for `sickbay check --from fabric-manager=FILE`."""

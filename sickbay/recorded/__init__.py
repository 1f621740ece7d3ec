"""Judgement of recorded outputs of the usual tools, for support cases: `sickbay check --from KIND=FILE`."""

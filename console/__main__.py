"""`python -m console`: the `sickbay` command without the console script, for the processes that the demo starts."""

from console.main import main

main()

"""The lab: every table and figure of the four papers as a frozen recipe, the printed numbers beside ours."""

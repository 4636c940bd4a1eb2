"""Processes that a test started through others."""

import os


def children(parent):
    """(pid, variables) of a process's children."""
    for pid in os.listdir("/proc"):
        try:
            with open(f"/proc/{pid}/stat") as stat:
                if int(stat.read().rsplit(")", 1)[1].split()[1]) != parent:
                    continue
            with open(f"/proc/{pid}/environ") as variables:
                yield int(pid), dict(entry.split("=", 1) for entry in variables.read().split("\0") if "=" in entry)
        except (OSError, ValueError, IndexError):
            continue


def ranks_of(launcher):
    """The pids of the ranks that a launcher started, by rank."""
    return {int(variables["RANK"]): pid for pid, variables in children(launcher) if "RANK" in variables}

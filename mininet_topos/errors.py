"""The errors of the lab.

LabError
├── Unable          this machine cannot run the lab; the message states what is missing and the remedy
├── BadExperiment   the description of an experiment is wrong; the message names the value
├── ProgramFailed   a controller, an agent or a traffic program ended early or did not become ready
└── RunFailed       a run did not end in time
"""

from __future__ import annotations


class LabError(Exception):
    """The lab cannot do what the user asked for; the message states the reason and the remedy."""


class Unable(LabError):
    """This machine cannot run the lab; the message states what is missing and the remedy."""


class BadExperiment(LabError):
    """The description of an experiment is wrong; the message names the value."""


class ProgramFailed(LabError):
    """A controller, an agent or a traffic program ended early or did not become ready."""


class RunFailed(LabError):
    """A run did not end in time."""

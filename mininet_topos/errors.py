"""What can go wrong in the lab.

LabError
├── Unable          this machine cannot run the lab: the message says what is missing and the remedy
├── BadExperiment   parameters that make no sense
├── ProgramFailed   a controller, an agent or a traffic program ended or never became ready
└── RunFailed       a run came to no end, or stayed void after its repeats
"""

from __future__ import annotations


class LabError(Exception):
    """The lab could not do what was asked; the message says what and what to do."""


class Unable(LabError):
    """This machine cannot run the lab: the message says what is missing and the remedy."""


class BadExperiment(LabError):
    """Parameters that make no sense."""


class ProgramFailed(LabError):
    """A controller, an agent or a traffic program ended or never became ready."""


class RunFailed(LabError):
    """A run came to no end, or stayed void after its repeats."""

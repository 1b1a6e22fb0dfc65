"""What the tests of the dashboard share."""

import pytest

from tests.support.dashboard.application import told_in


@pytest.fixture
def recorded(tmp_path):
    """The story of 20 s in the database of the test's folder."""
    with told_in(tmp_path, seconds=20) as story:
        yield story

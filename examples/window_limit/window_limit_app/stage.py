"""What the app declares of itself: all that Weir has to know."""

from app_base.stage import Metric, Stage
from window_limit_app.config import WindowLimitSettings

STAGE = Stage(
    name="window_limit",
    table=10,
    cookie=0x4C49_4D49_0000_0000,
    app="window_limit_app.app",
    settings=WindowLimitSettings,
    metrics=(
        Metric("entries", "entries sent to switches"),
        Metric("refused", "entries that a switch refused"),
    ),
)

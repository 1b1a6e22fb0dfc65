"""What SCCP declares of itself; ``app_base.stage`` finds it by the entry point ``sccp``."""

from app_base.stage import Stage
from sccp_app.config import SccpSettings

STAGE = Stage(
    name="sccp",
    table=1,
    cookie=0x5745_4903_0000_0000,
    app="sccp_app.app",
    settings=SccpSettings,
)

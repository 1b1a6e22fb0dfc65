"""What SDTCP declares of itself; ``app_base.stage`` finds it by the entry point ``sdtcp``."""

from app_base.stage import Metric, Stage
from sdtcp_app.config import SdtcpSettings

_LATENCY_BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.03, 0.1, 1.0)

STAGE = Stage(
    name="sdtcp",
    table=0,
    cookie=0x5745_4902_0000_0000,
    app="sdtcp_app.app",
    settings=SdtcpSettings,
    metrics=(
        Metric("alarms", "BUF_ALARMs received; outcome: decided, nothing, malformed", ("outcome",)),
        Metric("reflexes", "armed entries that switches activated by themselves"),
        Metric("answers", "entries that their switch answered", ("outcome",)),
        Metric("commands", "commands obeyed or refused", ("outcome",)),
        Metric("decisions", "flows chosen to be slowed down", ("equation",)),
        Metric("lifts", "clamps lifted", ("reason",)),
        Metric(
            "alarm_to_flow_mod_seconds",
            "time from the arrival of an alarm at the app until its FLOW_MODs are on their way",
            kind="histogram",
            buckets=_LATENCY_BUCKETS_S,
        ),
        Metric("clamps", "flows that are slowed down now", kind="gauge"),
        Metric("events_waiting", "events that wait for the app", kind="gauge"),
    ),
)

"""Recordings of a minute each, that the study on many recordings in docs/study.md names."""

import math
from pathlib import Path

for day in ("monday", "tuesday", "wednesday", "thursday"):
    lines = ["t [s],u [V],q_arm [rad],q_pend [rad],angle [rad]"]
    for k in range(6101):
        q = 0.1 * math.sin(0.02 * k)
        lines.append(f"{0.01 * k:.2f},0,{q:.4f},{-q:.4f},{q:.4f}")
    Path(f"{day}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")

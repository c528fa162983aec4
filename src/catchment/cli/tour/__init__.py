"""`catchment tour`: a network of three brokers on this machine, told as a story."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Annotated

from catchment.cli.options import flag


def tour(
    *, headless: Annotated[bool, flag("Play the story and end. Fails if a part of it does not come true.")] = False
) -> int:
    """Start three brokers on this machine and watch a stream, a near miss, and a broker that is killed and returns."""
    import asyncio

    from catchment.cli.tour.network import Network
    from catchment.cli.tour.story import tell

    with tempfile.TemporaryDirectory(prefix="catchment-tour-") as directory:
        try:
            asyncio.run(tell(Network(Path(directory)), headless))
        except KeyboardInterrupt:
            # With --headless the story was not over. Otherwise this is how a visitor leaves.
            if headless:
                raise
            os.write(2, b"\nthe brokers are stopped\n")
    return 0

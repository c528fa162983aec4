"""`python -m catchment.cli`."""

import sys

from catchment.cli import main

sys.exit(main())

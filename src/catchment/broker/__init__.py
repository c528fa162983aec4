"""The live host of routing cores: asyncio, sockets, the clock."""

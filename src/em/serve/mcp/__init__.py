"""The MCP server: what a memory knows and can do, for agents (extra `mcp`)."""

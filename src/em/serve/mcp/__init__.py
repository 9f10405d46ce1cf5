"""The MCP server: a memory as tools, resources and prompts for agents (extra `mcp`)."""

"""The service: HTTP API, pages and MCP server (extras `server` and `mcp`, imported lazily)."""

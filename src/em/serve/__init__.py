"""The HTTP service: Litestar on uvicorn (extra `server`), imported only when it is started."""

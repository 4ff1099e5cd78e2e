"""The dashboard: pages for people, made on the server from the public API.

It is a client of the API in the same process: it knows no service, no store and no rights of its own. Every page and
every button calls `/v1` with the user's token, so a page can never show or do more than that token may.

    app.py           routes, headers, refusals
    public_api.py    calls to the API in this process, and the relay below /ui/v1
    session.py       the token of the user
    pages/           one subject a module: calls the API, passes values to a template
    drawing/         charts and timelines
    run_rows.py      a run as templates show it; ansi.py: output made harmless
    live.py          the streams that keep open pages up to date
    rendering.py     templates/, static/ and forms; words.py: figures, times and statuses
"""

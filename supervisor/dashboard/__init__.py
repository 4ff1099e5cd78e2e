"""The dashboard: pages for people, made on the server from what the public API says.

It is a client of the API that happens to live in the same process: it knows no service, no store and no right of its
own. What a page shows and what a button does is asked of `/v1` with the token of whoever looks, so that a page can
never show or do more than that token may.

    app.py           which address is which page; headers, refusals
    public_api.py    the API, asked in this process, and relayed below /ui/v1
    session.py       who looks
    pages/           a subject a module: asks the API, hands values to a template
    drawing/         lines and bars over time as numbers
    run_rows.py      a run as a row; ansi.py: output of strangers made harmless
    live.py          what keeps open pages up to date
    rendering.py     templates/ to answers; words.py: figures, times and statuses; assets.py: static/
"""

"""The dashboard: pages for people, made on the server from what the public API says.

It is a client of the API that happens to live in the same process: it knows no service, no store and no right of its
own. What a page shows and what a button does is asked of `/v1` with the token of whoever looks, so that a page can
never show or do more than that token may.

    app.py           which address is which page; `outside` (headers, refusals), `session` (who looks), `relay`
    public_api.py    the API, asked in this process
    pages/           one page a module: asks the API, hands values to a template
    shaping/         what the API says, shaped for a template
    drawing/         lines and bars over time as numbers
    live/            what keeps open pages up to date
    rendering.py     templates/ to answers; words.py: figures, times and statuses; assets.py: static/
"""

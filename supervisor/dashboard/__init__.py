"""The dashboard: pages for people, made on the server from what the public API says.

It is a client of the API that happens to live in the same process: it knows no service, no store and no right of its
own. What a page shows and what a button does is asked of `/v1` with the token of whoever looks, so that a page can
never show or do more than that token may.
"""

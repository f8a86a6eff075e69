"""The Studio: a page on which a run reads a text and writes, and the server of that page.

    run_pool  the runs that may be read
    owner     the one thread that works with models
    responder what that thread does: it reads a question, asks a view, packs the answer
    views     what can be asked, a module each
    guards    who may ask
    server    the addresses
    starting  a port, a browser, and until when

What is imported with the server needs no torch, so that the page is there before the model is.
"""

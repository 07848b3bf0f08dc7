"""The explorer: the verbs as a page (`infoflow serve`), and as a folder of files (`infoflow serve --static DIR`).

    browser  ->  app.py (Starlette: guard, limits, typed questions)  ->  lanes.py  ->  worker.py (one at a time)

Nothing is computed in the process that listens. A worker is a process with a limit on its memory; one that takes too
long, or whose client has gone, is ended and replaced. A question is plain data: names and numbers, never code and never
a path outside the folder that was chosen.
"""

"""The order of folders, and of the rooms in each: a file includes what stands to its left.

configs < parallel < models < balance < data < trainer; tests see all.
"""

ORDER = ["configs", "parallel", "models", "balance", "data", "trainer"]

# What each room is for stands in docs/design.md.
ROOMS = {
    "configs": ["base", "yaml"],
    "models": ["spec", "ops", "layers", "families", "weights", "stages"],
    "balance": ["load", "groups", "costs", "search"],
    "data": ["settings", "text", "images", "videos", "records", "index", "loading"],
    "trainer": [
        "common",
        "settings",
        "device",
        "outputs",
        "planner",
        "doctor",
        "checkpoint",
        "run",
        "profile",
        "answers",
        "check",
        "loop",
        "commands",
    ],
}

def visible_from(place):
    """Visibility of a place's targets: the place itself, what stands to its right, and tests.

    Args:
      place: a folder, or a room of one, as in "trainer/checkpoint".
    """
    folder, _, room = place.partition("/")
    users = ["//%s:__subpackages__" % user for user in ORDER[ORDER.index(folder) + 1:] + ["tests"]]
    if not room:
        return users + ["//%s:__subpackages__" % folder]
    rooms = ROOMS[folder]
    own = ["//%s/%s:__subpackages__" % (folder, user) for user in rooms[rooms.index(room):]]
    return users + own + ["//%s:__pkg__" % folder]

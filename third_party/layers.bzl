"""The order of the folders: a file includes its own folder and folders to its left.

configs < parallel < models < balance < data < trainer; tests see all.
"""

ORDER = ["configs", "parallel", "models", "balance", "data", "trainer"]

def visible_from(folder):
    """Visibility of a folder's targets: the folder itself, the folders to its right, and tests."""
    users = ORDER[ORDER.index(folder):] + ["tests"]
    return ["//%s:__subpackages__" % user for user in users]

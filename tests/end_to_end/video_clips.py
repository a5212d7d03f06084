"""Folders of frames that the end-to-end tests of videos show."""
import os

import tiny_case

FRAMES = 5  # of clip "a"


def draw_clips(folder, a, cut):
    """In images/clips frames of the given sizes: "a", "b" of 90 x 50 pixels, and "cut", whose last
    frame is damaged; beside.png beside the folder. Returns the frames of "b"."""
    for clip, size, count in (("a", a, FRAMES), ("b", (90, 50), 4), ("cut", cut, 2)):
        os.makedirs(f"{folder}/images/clips/{clip}", exist_ok=True)
        for i in range(count):
            shape = tiny_case.SHAPES[i % len(tiny_case.SHAPES)]
            tiny_case.draw(f"{folder}/images/clips/{clip}/{i}.png", "green", shape, size, i)
    damaged = f"{folder}/images/clips/cut/1.png"
    with open(damaged, "r+b") as file:
        file.truncate(os.path.getsize(damaged) - 30)
    tiny_case.draw(f"{folder}/images/beside.png", "red", "disc", (64, 48), 3)
    return [f"clips/b/{i}.png" for i in range(4)]

"""presets_transformers_test.py PRINT_PRESETS   the presets have the published sizes, and the layer
specs count the parameters of the models that Transformers makes of their config.json."""
import json
import subprocess
import sys

import torch
from transformers import AutoConfig, AutoModelForImageTextToText

# Billions of parameters that the models' pages on the hub tell.
PUBLISHED = {"internvl2-1b": 0.938, "internvl2-2b": 2.21, "internvl2-8b": 8.08,
             "internvl2-4b": 4.15, "internvl2-26b": 25.5, "internvl2-40b": 40.1,
             "internvl2_5-4b": 3.71,
             "internvl3-1b": 0.938, "internvl3-2b": 2.09, "internvl3-8b": 7.94,
             "internvl3-14b": 15.1, "internvl3-38b": 38.4, "internvl3-78b": 78.4,
             "qwen2_vl-2b": 2.21, "qwen2_vl-7b": 8.29, "qwen2_vl-72b": 73.4,
             "qwen2_5_vl-3b": 3.75, "qwen2_5_vl-7b": 8.29, "qwen2_5_vl-32b": 33.5,
             "qwen2_5_vl-72b": 73.4, "qwen3_vl-2b": 2.13, "qwen3_vl-4b": 4.44,
             "qwen3_vl-8b": 8.77, "qwen3_vl-32b": 33.4, "llava1_5-7b": 7.06, "llava1_5-13b": 13.4,
             "llava1_6-7b": 7.06, "llava1_6-mistral-7b": 7.57}


def transformers_parameters(config):
    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(AutoConfig.for_model(**config))
    return sum(weight.numel() for weight in model.parameters())


def main():
    printed = subprocess.run([sys.argv[1]], capture_output=True, text=True, check=True).stdout
    presets = [json.loads(line) for line in printed.splitlines()]
    faults = [f"{name}: no preset" for name in PUBLISHED
              if name not in {preset["name"] for preset in presets}]
    for preset in presets:
        name, ours = preset["name"], preset["parameters"]
        theirs = transformers_parameters(preset["config"])
        if ours != theirs:
            faults.append(f"{name}: {ours} parameters, Transformers makes {theirs}")
        published = PUBLISHED.get(name)
        if published and abs(theirs / 1e9 / published - 1) > 0.01:
            faults.append(f"{name}: {theirs / 1e9:.2f} billion parameters, published {published}")
        print(f"{name}: {theirs / 1e9:.3f} billion, published {published}")
    print("".join(f"FAILED {fault}\n" for fault in faults), end="")
    print(f"{len(presets) - len(faults)} passed, {len(faults)} failed")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

"""What Transformers itself computes, in fp32, bf16, fp16 or double precision."""
import copy
import os

import torch
import torch.nn.functional as F
from safetensors.torch import load_file


def to_dtype(batch, dtype):
    return {k: v.to(dtype) if v.is_floating_point() else v for k, v in batch.items()}


def loss_and_logits(model, batches):
    """The mean loss over all targets of all batches, and the logits of each batch."""
    total, count, logits = 0.0, 0, []
    for batch in batches:
        arguments = to_dtype({k: v for k, v in batch.items() if k != "labels"}, model.dtype)
        output = model(**arguments, use_cache=False).logits
        output = output.float() if output.dtype.itemsize == 2 else output
        targets = batch["labels"][:, 1:].flatten()
        total = total + F.cross_entropy(output[:, :-1].flatten(0, 1), targets, reduction="sum")
        count += int((targets != -100).sum())
        logits.append(output.detach())
    return total / count, logits


def key_map(model, folder):
    """Parameter name -> key in the saved file, found by the numbers themselves."""
    keys = {}
    for key, tensor in load_file(os.path.join(folder, "model.safetensors")).items():
        keys[tensor.double().sum().item(), tuple(tensor.shape)] = key
    return {name: keys[weight.detach().double().sum().item(), tuple(weight.shape)]
            for name, weight in model.named_parameters()}


def gradients(model, batches, key_of, scale=1):
    """Loss, logits of each batch, gradients under the keys of the file; zeros where a weight takes
    no part, such as the encoder's layers behind the one whose output LLaVA takes. The gradients are
    those of the loss times `scale`."""
    model.zero_grad(set_to_none=True)
    loss, logits = loss_and_logits(model, batches)
    (loss * scale).backward()
    grads = {key_of[name]: torch.zeros_like(weight) if weight.grad is None else weight.grad
             for name, weight in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    return loss.item(), logits, grads


def adamw_steps(model, batches, recipe, key_of, absent_is_zero=False):
    """Losses, gradient norms before clipping, and the weights after the steps of a recipe, of those
    that require a gradient. torch's AdamW passes over one without it unless `absent_is_zero`."""
    model = copy.deepcopy(model)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    everything = recipe["weight_decay_on"] == "all"
    groups = [
        {
            "params": [w for w in weights if w.ndim >= 2 or everything],
            "weight_decay": recipe["weight_decay"],
        },
        {"params": [w for w in weights if w.ndim < 2 and not everything], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW([g for g in groups if g["params"]], betas=recipe["betas"],
                                  eps=recipe["eps"], foreach=False)
    losses, norms = [], []
    for lr in recipe.get("lrs") or [recipe["lr"]] * 10:
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.zero_grad(set_to_none=True)
        loss, _ = loss_and_logits(model, batches)
        loss.backward()
        for weight in weights if absent_is_zero else []:
            weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
        losses.append(loss.item())
        norms.append(torch.nn.utils.clip_grad_norm_(weights, recipe["clip"] or float("inf")).item())
        optimizer.step()
    return losses, norms, {key_of[n]: w.detach() for n, w in model.named_parameters()}

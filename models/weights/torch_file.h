#pragma once

#include <string>

#include "models/weights/safetensors_file.h"

namespace equipoise {

// Whether the name of a file is that of PyTorch's own: pytorch_model.bin and its shards.
bool IsTorchFile(const std::string& path);

// The tensors of a file that torch.save has written of a state_dict (a zip archive, as of PyTorch
// 1.6), each as bytes of the file: storages lie in it as they are. Throws DataError that begins
// with `path:` for other files, and for tensors that are no run of bytes.
SafetensorsHeader ReadTorchHeader(const std::string& path);

}  // namespace equipoise

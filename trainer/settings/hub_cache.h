#pragma once

#include <optional>
#include <string>

#include "trainer/settings/run_config.h"

namespace equipoise {

// Repositories of the Hugging Face Hub and of ModelScope by their names, ORG/NAME, as they lie in
// the caches of `hf download`, Transformers and `modelscope download` on this machine. Nothing is
// downloaded.
enum class HubKind { kModel, kDataset };

// The folder of the repository whose name `path` is, or what lies there at the rest of `path`
// behind the name; nothing where there is none. Of Hugging Face the revision `main` (of a single
// other one that one), in HF_HUB_CACHE, HF_HOME/hub or ~/.cache/huggingface/hub; of models also
// ModelScope's, in MODELSCOPE_CACHE or ~/.cache/modelscope.
std::optional<std::string> CachedOnHub(const std::string& path, HubKind kind);

// `path`, or where nothing is there what CachedOnHub() gives.
std::string OrOnHub(const std::string& path, HubKind kind);

// What to do about a folder that is not there: text to go behind "no such folder".
std::string AdviceForMissing(const std::string& path);

// Puts folders of the cache in place of names in model.hf, model.vision, model.llm,
// model.adapter.init, data.tokenizer and the sources of data. Where model.hf is a LLaVA-1.5 in its
// own form, whose encoder another folder describes that is there, the two become its parts.
void ResolveHubNames(RunConfig& config);

}  // namespace equipoise

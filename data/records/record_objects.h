#pragma once

#include <vector>

#include "configs/base/json.h"
#include "data/images/image_processor.h"
#include "data/text/conversation.h"

namespace equipoise {

// ms-swift's form of grounding: names and boxes stand in "objects", in the text `<ref-object>` and
// `<bbox>` in their places, and each model has its own way of writing them.

// Reads "objects" of a record whose turns and videos are read: {"ref": [name…], "bbox":
// [[x, y, x, y]…], "bbox_type": "real" (pixels of the picture's file; so without it) or "norm1"
// (shares of its sides), "image_id": [picture of each box, from 0; where fewer, the first]}. A box
// of two numbers is a point; corners are put in order. In all turns together each placeholder must
// stand as often as there are names, or boxes. Where neither stands anywhere, or there are none to
// put in place, nothing is read, and the placeholders are text. Throws Refusal.
void ReadObjects(const Json& object, Record& record);

// Puts names and boxes in the places of their placeholders, in the order of the turns, as the
// model's ImageSpec::grounding says, coordinates rounded as by Python's round(). `sizes`: of the
// record's pictures. Throws Refusal for a box of a picture that there is not, and for a name that
// makes another `<image>`; ImageError for a picture that the model cannot take.
void WriteObjects(const ImageProcessor& processor, const std::vector<ImageSize>& sizes,
                  Record& record);

}  // namespace equipoise

// data.pkl of files that torch.save has written.
#pragma once

#include <string>

namespace equipoise {

// Of a state_dict, with its _metadata: torch.nn.Linear(3, 2).bfloat16().state_dict().
inline const std::string kStateDict(
    "\200\002ccollections\012OrderedDict\012q\000)Rq\001(X\006\000\000\000weightq\002ctor"
    "ch._utils\012_rebuild_tensor_v2\012q\003((X\007\000\000\000storageq\004ctorch\012BFl"
    "oat16Storage\012q\005X\001\000\000\0000q\006X\003\000\000\000cpuq\007K\006tq\010QK"
    "\000K\002K\003\206q\011K\003K\001\206q\012\211h\000)Rq\013tq\014Rq\015X\004\000\000"
    "\000biasq\016h\003((h\004h\005X\001\000\000\0001q\017h\007K\002tq\020QK\000K\002\205"
    "q\021K\001\205q\022\211h\000)Rq\023tq\024Rq\025u}q\026X\011\000\000\000_metadataq"
    "\027h\000)Rq\030X\000\000\000\000q\031}q\032X\007\000\000\000versionq\033K\001sssb.",
    293);

// Of {'x': w[1:], 'p': Parameter(w), 'i': arange(5), 'n': 3, 's': 'text', 'l': [1, 2.5, None,
// True], 'big': 1 << 40, 'h': w.half()} with w = arange(12.0).view(3, 4).
inline const std::string kDictionary(
    "\200\002}q\000(X\001\000\000\000xq\001ctorch._utils\012_rebuild_tensor_v2\012q\002(("
    "X\007\000\000\000storageq\003ctorch\012FloatStorage\012q\004X\001\000\000\0000q\005X"
    "\003\000\000\000cpuq\006K\014tq\007QK\004K\002K\004\206q\010K\004K\001\206q\011\211c"
    "collections\012OrderedDict\012q\012)Rq\013tq\014Rq\015X\001\000\000\000pq\016ctorch."
    "_utils\012_rebuild_parameter\012q\017h\002((h\003h\004h\005h\006K\014tq\020QK\000K"
    "\003K\004\206q\021K\004K\001\206q\022\211h\012)Rq\023tq\024Rq\025\210h\012)Rq\026"
    "\207q\027Rq\030X\001\000\000\000iq\031h\002((h\003ctorch\012LongStorage\012q\032X"
    "\001\000\000\0001q\033h\006K\005tq\034QK\000K\005\205q\035K\001\205q\036\211h\012)Rq"
    "\037tq Rq!X\001\000\000\000nq\042K\003X\001\000\000\000sq#X\004\000\000\000textq$X"
    "\001\000\000\000lq%]q&(K\001G@\004\000\000\000\000\000\000N\210eX\003\000\000\000big"
    "q'\212\006\000\000\000\000\000\001X\001\000\000\000hq(h\002((h\003ctorch\012HalfStor"
    "age\012q)X\001\000\000\0002q*h\006K\014tq+QK\000K\003K\004\206q,K\004K\001\206q-\211"
    "h\012)Rq.tq/Rq0u.",
    499);

}  // namespace equipoise

#include "models/weights/torch_pickle.h"

#include <fmt/format.h>

#include <array>
#include <deque>
#include <unordered_map>
#include <utility>

#include "configs/base/error.h"

namespace equipoise {
namespace {

constexpr size_t kMaxDimensions = 64;
constexpr size_t kLongestName = 200;  // of a class or a storage, which tensors copy

struct Object;

// A value on the stack. What it holds lies in the reader, so that values may share it.
struct Value {
  enum class Kind : uint8_t { kOther, kInt, kText, kGlobal, kTuple, kDict, kStorage, kTensor };
  Kind kind = Kind::kOther;
  int64_t number = 0;
  Object* object = nullptr;
};

struct Object {
  std::string text;          // of a text, and "module name" of a global
  std::vector<Value> items;  // of a tuple and a storage; of a dictionary keys and values in turn
  PickledTensor tensor;
};

// dtype of torch.FloatStorage and the like; empty: unknown.
std::string DtypeOf(std::string_view global) {
  using Name = std::pair<std::string_view, const char*>;
  static constexpr std::array<Name, 10> kNames = {{{"torch FloatStorage", "F32"},
                                                   {"torch HalfStorage", "F16"},
                                                   {"torch BFloat16Storage", "BF16"},
                                                   {"torch DoubleStorage", "F64"},
                                                   {"torch LongStorage", "I64"},
                                                   {"torch IntStorage", "I32"},
                                                   {"torch ShortStorage", "I16"},
                                                   {"torch CharStorage", "I8"},
                                                   {"torch ByteStorage", "U8"},
                                                   {"torch BoolStorage", "BOOL"}}};
  for (const auto& [name, dtype] : kNames) {
    if (name == global) return dtype;
  }
  return "";
}

// A machine for the operations of Python's pickle that torch.save uses (protocols 2 to 4; PEP 307,
// PEP 3154).
class Reader {
 public:
  Reader(std::string_view bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  std::map<std::string, PickledTensor> Read() {
    while (Step()) {
    }
    const Value top = Pop();
    if (top.kind != Value::Kind::kDict) Refuse("holds no dictionary of tensors");
    std::map<std::string, PickledTensor> tensors;
    const std::vector<Value>& items = top.object->items;
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      if (items[i].kind == Value::Kind::kText && items[i + 1].kind == Value::Kind::kTensor)
        tensors[items[i].object->text] = items[i + 1].object->tensor;
    }
    return tensors;
  }

 private:
  [[noreturn]] void Refuse(const std::string& what) const {
    throw DataError(
        fmt::format("{}: {}; write the weights as safetensors with Transformers: "
                    "AutoModel.from_pretrained(FOLDER).save_pretrained(FOLDER)",
                    path_, what));
  }
  [[noreturn]] void RefuseDamaged() const {
    Refuse("is damaged: its pickle ends or makes no sense");
  }

  std::string_view Take(uint64_t count) {
    if (count > bytes_.size() - at_) RefuseDamaged();
    const std::string_view taken = bytes_.substr(at_, count);
    at_ += count;
    return taken;
  }

  // Little-endian.
  uint64_t TakeNumber(size_t width) {
    uint64_t number = 0;
    const std::string_view taken = Take(width);
    for (size_t i = width; i-- > 0;) number = number << 8 | static_cast<uint8_t>(taken[i]);
    return number;
  }

  std::string_view TakeLine() {
    const size_t end = bytes_.find('\n', at_);
    if (end == bytes_.npos) RefuseDamaged();
    const std::string_view line = Take(end - at_);
    Take(1);
    return line;
  }

  Object* Make() { return &objects_.emplace_back(); }

  void Push(Value value) { stack_.push_back(value); }
  void PushInt(int64_t number) { Push({Value::Kind::kInt, number, nullptr}); }
  void PushText(std::string_view text, Value::Kind kind = Value::Kind::kText) {
    Object* object = Make();
    object->text = text;
    Push({kind, 0, object});
  }

  Value Pop() {
    if (stack_.empty() || (!marks_.empty() && stack_.size() <= marks_.back())) RefuseDamaged();
    const Value value = stack_.back();
    stack_.pop_back();
    return value;
  }

  // The values behind the last mark, which goes.
  std::vector<Value> PopToMark() {
    if (marks_.empty()) RefuseDamaged();
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<Value> values(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return values;
  }

  void PushTuple(std::vector<Value> items) {
    Object* object = Make();
    object->items = std::move(items);
    Push({Value::Kind::kTuple, 0, object});
  }

  void PushTupleOf(size_t count) {
    std::vector<Value> items(count);
    for (size_t i = count; i-- > 0;) items[i] = Pop();
    PushTuple(std::move(items));
  }

  void PushFromMemo(uint64_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) RefuseDamaged();
    Push(found->second);
  }

  void Keep(uint64_t key) {
    if (stack_.empty()) RefuseDamaged();
    memo_[key] = stack_.back();
  }

  // Into the dictionary below: keys and values in turn.
  void SetItems(const std::vector<Value>& items) {
    if (stack_.empty()) RefuseDamaged();
    const Value& dict = stack_.back();
    if (dict.kind != Value::Kind::kDict) return;  // of an object that is not read
    if (items.size() % 2 != 0) RefuseDamaged();
    std::vector<Value>& all = dict.object->items;
    all.insert(all.end(), items.begin(), items.end());
  }

  std::vector<int64_t> Sizes(const Value& tuple) const {
    if (tuple.kind != Value::Kind::kTuple || tuple.object->items.size() > kMaxDimensions)
      RefuseDamaged();
    std::vector<int64_t> sizes;
    for (const Value& item : tuple.object->items) {
      if (item.kind != Value::Kind::kInt || item.number < 0) RefuseDamaged();
      sizes.push_back(item.number);
    }
    return sizes;
  }

  // torch._utils._rebuild_tensor_v2(storage, offset, size, stride, ...)
  Value Tensor(const std::vector<Value>& arguments) {
    if (arguments.size() < 4 || arguments[0].kind != Value::Kind::kStorage ||
        arguments[1].kind != Value::Kind::kInt || arguments[1].number < 0)
      RefuseDamaged();
    // ("storage", class, key, location, elements)
    const std::vector<Value>& storage = arguments[0].object->items;
    if (storage.size() < 3 || storage[1].kind != Value::Kind::kGlobal ||
        storage[2].kind != Value::Kind::kText || storage[2].object->text.size() > kLongestName)
      RefuseDamaged();
    Object* object = Make();
    object->tensor = {storage[2].object->text, DtypeOf(storage[1].object->text),
                      arguments[1].number, Sizes(arguments[2]), Sizes(arguments[3])};
    const PickledTensor& tensor = object->tensor;
    if (tensor.shape.size() != tensor.stride.size()) RefuseDamaged();
    return {tensor.dtype.empty() ? Value::Kind::kOther : Value::Kind::kTensor, 0, object};
  }

  void Reduce() {
    const Value arguments = Pop(), function = Pop();
    if (function.kind != Value::Kind::kGlobal || arguments.kind != Value::Kind::kTuple)
      return Push({});
    const std::string& name = function.object->text;
    const std::vector<Value>& items = arguments.object->items;
    if (name == "collections OrderedDict" && items.empty())
      return Push({Value::Kind::kDict, 0, Make()});
    if (name == "torch._utils _rebuild_tensor_v2") return Push(Tensor(items));
    if (name == "torch._utils _rebuild_parameter" && !items.empty()) return Push(items[0]);
    Push({});
  }

  void PushGlobal(std::string_view module, std::string_view name) {
    if (module.size() + name.size() > kLongestName) return Push({});
    PushText(fmt::format("{} {}", module, name), Value::Kind::kGlobal);
  }

  void PushStackGlobal() {
    const Value name = Pop(), module = Pop();
    if (name.kind != Value::Kind::kText || module.kind != Value::Kind::kText) RefuseDamaged();
    PushGlobal(module.object->text, name.object->text);
  }

  void PushLong() {
    const size_t width = TakeNumber(1);
    if (width > 8) {  // more than a size can be
      Take(width);
      return Push({});
    }
    uint64_t number = TakeNumber(width);
    if (width > 0 && width < 8 && (number >> (8 * width - 1)) != 0)
      number |= ~uint64_t{0} << 8 * width;
    PushInt(static_cast<int64_t>(number));
  }

  void PushStorage() {
    const Value id = Pop();
    const bool storage = id.kind == Value::Kind::kTuple;
    Push({storage ? Value::Kind::kStorage : Value::Kind::kOther, 0, id.object});
  }

  // One operation; false at the end.
  bool Step() {
    const auto operation = static_cast<uint8_t>(Take(1)[0]);
    switch (operation) {
      case '.':
        return false;
      case 0x80:  // PROTO
        Take(1);
        break;
      case 0x95:  // FRAME
        Take(8);
        break;
      case '(':
        marks_.push_back(stack_.size());
        break;
      case '}':
        Push({Value::Kind::kDict, 0, Make()});
        break;
      case ']':
      case 'N':
      case 0x88:  // NEWTRUE
      case 0x89:  // NEWFALSE
        Push({});
        break;
      case 'G':  // a double
        Take(8);
        Push({});
        break;
      case ')':
        PushTuple({});
        break;
      case 't':
        PushTuple(PopToMark());
        break;
      case 0x85:
      case 0x86:
      case 0x87:
        PushTupleOf(operation - 0x84U);
        break;
      case 'J':
        PushInt(static_cast<int32_t>(TakeNumber(4)));
        break;
      case 'K':
        PushInt(static_cast<int64_t>(TakeNumber(1)));
        break;
      case 'M':
        PushInt(static_cast<int64_t>(TakeNumber(2)));
        break;
      case 0x8a:
        PushLong();
        break;
      case 'X':
        PushText(Take(TakeNumber(4)));
        break;
      case 0x8c:
      case 'U':  // a text of Python 2
        PushText(Take(TakeNumber(1)));
        break;
      case 'c': {
        const std::string_view module = TakeLine();
        PushGlobal(module, TakeLine());
        break;
      }
      case 0x93:
        PushStackGlobal();
        break;
      case 'q':
        Keep(TakeNumber(1));
        break;
      case 'r':
        Keep(TakeNumber(4));
        break;
      case 0x94:
        Keep(memo_.size());
        break;
      case 'h':
        PushFromMemo(TakeNumber(1));
        break;
      case 'j':
        PushFromMemo(TakeNumber(4));
        break;
      case 'Q':
        PushStorage();
        break;
      case 'R':
        Reduce();
        break;
      case 0x81:  // NEWOBJ
        Pop();
        Pop();
        Push({});
        break;
      case 'b':  // the state of an object: _metadata of a state_dict
      case 'a':  // an item of a list
      case '0':
        Pop();
        break;
      case 'e':  // items of a list
        PopToMark();
        break;
      case 's': {
        const Value value = Pop(), key = Pop();
        SetItems({key, value});
        break;
      }
      case 'u':
        SetItems(PopToMark());
        break;
      default:
        Refuse(
            fmt::format("its pickle has the operation 0x{:02x}, which no dictionary of tensors "
                        "needs",
                        operation));
    }
    return true;
  }

  std::string_view bytes_;
  const std::string& path_;
  size_t at_ = 0;
  std::deque<Object> objects_;
  std::vector<Value> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, Value> memo_;
};

}  // namespace

std::map<std::string, PickledTensor> ReadTensorPickle(std::string_view bytes,
                                                      const std::string& path) {
  return Reader(bytes, path).Read();
}

}  // namespace equipoise

#pragma once

#include <cerrno>

namespace equipoise {

// What to do about a file that cannot be written, by the number of the error: the end of a message;
// "" where nothing is known.
inline const char* WriteAdvice(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return "; free some space, or choose another folder; a run goes on from its last checkpoint";
    case EACCES:
    case EROFS:
      return "; choose a folder that can be written to";
    default:
      return "";
  }
}

}  // namespace equipoise

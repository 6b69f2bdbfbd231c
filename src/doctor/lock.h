// The lock beside a model, sextant.lock.json: what was checked, with which verdict. Loading
// compares a fingerprint of every file (its size, its header and spread pages) in milliseconds;
// doctor compares the hash of every byte.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "doctor/diagnosis.h"

namespace sextant {

inline constexpr const char* kLockName = "sextant.lock.json";

// Hashes every file that the checkpoint is read from and writes the lock, whole or not at all.
Status write_lock(const Checkpoint& checkpoint, const Diagnosis& diagnosis,
                  const std::string& version);

enum class LockDepth : uint8_t { kFingerprint, kEveryByte };
// F5 changed-since-lock for every file that is not what was locked; nothing without a lock. A lock
// that cannot be read, of another format or of another model is F5 as well. F7 verdict-since-lock
// names findings that differ from those of the lock; at kFingerprint, where `now` is a quick
// diagnosis that cannot know them, the errors of the lock that it does not have.
std::vector<Finding> check_lock(const Checkpoint& checkpoint, LockDepth depth,
                                const Diagnosis& now);

}  // namespace sextant

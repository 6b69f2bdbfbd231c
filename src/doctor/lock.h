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
// that cannot be read is F5 as well.
std::vector<Finding> check_lock(const Checkpoint& checkpoint, LockDepth depth);

}  // namespace sextant

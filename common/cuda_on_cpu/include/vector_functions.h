// SPDX-License-Identifier: MIT
//
// CUDA spreads its names over several headers; here one has them all.
#pragma once

#include "cuda_runtime.h"

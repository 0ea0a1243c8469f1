// SPDX-License-Identifier: MIT
//
// What a .cu file sees of CUDA when it is built for the CPU. Only names that really work on the
// CPU are here: anything else fails to compile, so that nothing is silently left undone.
#pragma once

#include "cuda_on_cpu/qualifiers.h"
#include "cuda_on_cpu/vector_types.h"
// (keep the two above first: the others use their names)
#include "cuda_on_cpu/atomics.h"
#include "cuda_on_cpu/host_api.h"
#include "cuda_on_cpu/intrinsics.h"
#include "cuda_on_cpu/kernel_variables.h"
#include "cuda_on_cpu/launch.h"
#include "cuda_on_cpu/synchronization.h"
#include "cuda_on_cpu/warp.h"

// SPDX-License-Identifier: MIT
//
// The stand-ins for CUB that exist.
#pragma once

#include "device/device_histogram.cuh"
#include "device/device_radix_sort.cuh"

"""Faults to plant: small edits of lessons and tools, and the check that must notice each.

An edit replaces `old`, which must occur exactly `times` times in the file, by `new`. The checks are
those of tools/plant_faults.py. A fault with the check "nothing" is one that no check can notice
without a GPU or more time than a test has; `why` says so.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    name: str
    file: str
    old: str
    new: str
    check: str
    why: str
    fast: bool = False
    times: int = 1


L19 = "chapter07/19_histogram_race_and_atomics.cpp"
L20 = "chapter07/20_privatized_histogram.cu"
L21 = "chapter07/21_histogram_to_counting_sort.cu"
L40 = "chapter07/40_histogram_cpu_baseline.cpp"
L41 = "chapter07/41_histogram_cpu_baseline_privatized.cpp"
L42 = "chapter07/42_counting_sort_cpu_baseline.cpp"
L90 = "chapter07/90_race_on_hardware.cu"
L91 = "chapter07/91_stable_counting_sort.cu"
L92 = "chapter07/92_counting_sort_at_speed.cu"
DAY29 = "day29/histogram.cu"
FLOOR = "day29/histogram_at_the_floor.cu"

# The barriers of 20 and of day 29, each with the comment that makes it unique.
ZEROED_20 = ("  // No thread may count before every bucket is zero, or its count would be wiped "
             "out.\n  __syncthreads();\n")
COUNTED_20 = ("  // No thread may merge a bucket before every thread of the block has finished "
              "counting into it.\n  __syncthreads();\n")
ZEROED_29 = "  __syncthreads();  // No one counts before all bins are zero.\n"
COUNTED_29 = "  __syncthreads();  // No one merges before all bytes of the block are counted.\n"

BASELINES = [
    Fault("40 drops the last element", L40, "for (int bucket : bucket_of) hist[bucket]++;",
          "for (int i = 0; i + 1 < N; ++i) hist[bucket_of[i]]++;", "transcript",
          "one bucket is short by one", fast=True),
    Fault("40's check compares with itself", L40, "if (count != expected) return false;",
          "if (count != count) return false;", "warnings", "-Wall sees a comparison with itself"),
    Fault("40 counts only the first bucket's check", L40, "  return true;\n}\n\nint main",
          "  return hist.empty();\n}\n\nint main", "transcript", "a right result is called wrong"),
    Fault("41 has one bucket too few in its input", L41, "bucket_of[i] = i % NUM_BUCKETS;",
          "bucket_of[i] = i % (NUM_BUCKETS - 1);", "transcript", "the last bucket stays empty"),
    Fault("41 starts at one", L41, "std::vector<int> hist(num_buckets, 0);",
          "std::vector<int> hist(num_buckets, 1);", "transcript", "missing zeroing"),
    Fault("42 takes counts for positions", L42, "cursor[b] = running_total;",
          "cursor[b] = counts[b];", "transcript", "the chapter's own trap", fast=True),
    Fault("42 scans inclusively", L42,
          "    cursor[b] = running_total;\n    running_total += counts[b];",
          "    running_total += counts[b];\n    cursor[b] = running_total - 1;", "transcript",
          "wrong scan offset"),
    Fault("42's cursor is off by one", L42, "for (int key : keys) sorted[cursor[key]++] = key;",
          "for (int key : keys) sorted[cursor[key]++ & 6] = key;", "transcript",
          "slots are written twice"),
    Fault("19 drops the last, short wave", L19, "std::min(WARP_SIZE, bucket_of.size() - start)",
          "bucket_of.size() - start < WARP_SIZE ? 0 : WARP_SIZE", "transcript",
          "wrong last wave", fast=True),
    Fault("19 has waves of 31", L19, "start += WARP_SIZE) {", "start += WARP_SIZE - 1) {",
          "transcript", "elements are counted in two waves"),
    Fault("19 does not lose anything", L19, "= pre_wave_value[lane] + 1;", "+= 1;", "transcript",
          "the race is gone"),
    Fault("19's atomic count loses the tail", L19,
          "for (int bucket : bucket_of) hist[bucket] += 1;",
          "for (std::size_t i = 0; i + 32 < bucket_of.size(); ++i) hist[bucket_of[i]] += 1;",
          "transcript", "the self-check compares with the rule that made the input"),
]

LESSON_20 = [
    Fault("20 lacks the barrier after zeroing", L20, ZEROED_20, "", "race",
          "a count may be wiped out", fast=True),
    Fault("20 lacks the barrier before merging", L20, COUNTED_20, "", "race",
          "a bucket is merged too early"),
    Fault("20 merges too early, and no race detector looks on", L20, COUNTED_20, "", "self",
          "threads that run one after another merge what they alone have counted"),
    Fault("20 zeroes one bucket a thread", L20,
          "for (int b = threadIdx.x; b < NUM_BUCKETS; b += blockDim.x) s_hist[b] = 0;",
          "if (threadIdx.x < NUM_BUCKETS) s_hist[threadIdx.x] = 0;", "kernels",
          "buckets are left out when the block is smaller", fast=True),
    Fault("20 merges one bucket a thread", L20,
          "for (int b = threadIdx.x; b < NUM_BUCKETS; b += blockDim.x) "
          "atomicAdd(&g_hist[b], s_hist[b]);",
          "if (int b = threadIdx.x; b < NUM_BUCKETS) atomicAdd(&g_hist[b], s_hist[b]);", "kernels",
          "buckets are left out when the block is smaller"),
    Fault("20 merges by assignment", L20, "atomicAdd(&g_hist[b], s_hist[b]);",
          "g_hist[b] = s_hist[b];", "self", "the last block wins", fast=True),
    Fault("20 drops the tail", L20,
          "i < n; i += stride) {\n    atomicAdd(&s_hist[g_data[i]], 1);",
          "i + stride <= n; i += stride) {\n    atomicAdd(&s_hist[g_data[i]], 1);", "kernels",
          "right for whole grids only"),
    Fault("20 does not zero its copy", L20,
          "for (int b = threadIdx.x; b < NUM_BUCKETS; b += blockDim.x) s_hist[b] = 0;", "",
          "self", "missing zeroing: shared memory holds what was there"),
    Fault("20 has an empty kernel", L20, "  __shared__ int s_hist[NUM_BUCKETS];\n",
          "  __shared__ int s_hist[NUM_BUCKETS];\n  if (n >= 0) return;\n", "self",
          "the zeros stay"),
    Fault("20 counts in shared memory without atomics", L20, "atomicAdd(&s_hist[g_data[i]], 1);",
          "s_hist[g_data[i]]++;", "race", "the race of lesson 19"),
    Fault("20 counts in global memory without atomics", L20, "atomicAdd(&g_hist[g_data[i]], 1);",
          "g_hist[g_data[i]]++;", "race", "the race of lesson 19"),
    Fault("20 does not check a launch", L20,
          "    histogram_privatized<<<num_blocks, block_size>>>(g_data, g_privatized, n);\n"
          "    CUDA_CHECK(cudaGetLastError());\n",
          "    histogram_privatized<<<num_blocks, block_size>>>(g_data, g_privatized, n);\n",
          "tests test_known_troubles", "every launch must be checked", fast=True),
    Fault("20 counts the atomics of the simulation wrongly", L20,
          "result.hist[b] += block_hist[b];\n      result.global_atomics += 1;",
          "result.hist[b] += block_hist[b];\n      result.global_atomics += block_hist[b] > 0;",
          "nothing", "every bucket of every block is used on the lesson's input, so the number is "
          "the same; `20 issues no atomic for an empty bucket` sees it on other inputs"),
    Fault("20 issues no atomic for an empty bucket", L20,
          "result.hist[b] += block_hist[b];\n      result.global_atomics += 1;",
          "result.hist[b] += block_hist[b];\n      result.global_atomics += block_hist[b] > 0;",
          "kernels", "blocks x buckets, whatever the data"),
    Fault("20's check returns a comparison with itself", L20, "  return got == want;\n}\n\n// Says",
          "  return want == want;\n}\n\n// Says", "kernels",
          "a wrong histogram is planted for the check"),
    Fault("20's stride has 32 bits", L20,
          "const long long stride = 1LL * gridDim.x * blockDim.x;",
          "const int stride = gridDim.x * blockDim.x;", "nothing",
          "it matters for n near 2^31 only, an input of 8 GiB", times=2),
]

LESSON_21 = [
    Fault("21's scan starts a lane too late", L21, "b >= distance ? s_sum[b - distance]",
          "b > distance ? s_sum[b - distance]", "self", "wrong scan offset"),
    Fault("21's scan is inclusive", L21, "g_offsets[b] = s_sum[b] - own_count;",
          "g_offsets[b] = s_sum[b];", "self", "wrong scan offset"),
    Fault("21's scan lacks the barrier between read and write", L21,
          "s_sum[b - distance] : 0;\n    __syncthreads();", "s_sum[b - distance] : 0;", "race",
          "a neighbor reads what was overwritten"),
    Fault("21's scan lacks the barrier after its step", L21,
          "    s_sum[b] += left_sum;\n    __syncthreads();\n", "    s_sum[b] += left_sum;\n",
          "race", "the next step reads too early"),
    Fault("21 has a barrier inside a branch", L21,
          "s_sum[b - distance] : 0;\n    __syncthreads();",
          "s_sum[b - distance] : 0;\n    if (b >= distance) __syncthreads();", "self",
          "the CPU runtime reports which threads wait where"),
    Fault("21's cursor is off by one", L21, "const int slot = atomicAdd(&g_cursor[key], 1);",
          "const int slot = atomicAdd(&g_cursor[key], 1) + 1;", "self",
          "the first slot stays empty"),
    Fault("21 takes slots without atomics", L21, "const int slot = atomicAdd(&g_cursor[key], 1);",
          "const int slot = g_cursor[key]++;", "race", "two elements get one slot"),
    Fault("21 writes the thread's number as index", L21,
          "g_out_orig_idx[slot] = static_cast<int>(i);",
          "g_out_orig_idx[slot] = static_cast<int>(threadIdx.x);", "kernels",
          "right for one block only"),
    Fault("21 writes behind its output", L21, "    g_out_val[slot] = key;\n",
          "    g_out_val[slot] = key;\n    if (i == 0) g_out_val[n] = key;\n", "kernels",
          "guard words stand behind every buffer"),
    Fault("21's simulation is not stable", L21,
          "for (std::size_t i = 0; i < data.size(); ++i) {\n    const int slot",
          "for (std::size_t i = data.size(); i-- > 0;) {\n    const int slot", "transcript",
          "equal keys come out in reverse"),
    Fault("21's check of the scatter accepts anything", L21,
          "if (data[original] != out.values[slot]) return false;",
          "if (data[original] != data[original]) return false;", "kernels",
          "a wrong pair is planted for the check"),
]

LESSON_90_AND_91 = [
    Fault("90 does not keep its warps in step", L90, "  __syncwarp();\n", "", "self",
          "lanes that run one after another lose nothing, which is more than the bound"),
    Fault("90's grid drops the tail", L90,
          "kernel<<<(n + block_size - 1) / block_size, block_size>>>(g_hist, n);",
          "kernel<<<n / block_size + (n < block_size), block_size>>>(g_hist, n);", "self",
          "1000 is no multiple of 256"),
    Fault("90's atomic kernel is plain", L90, "if (i < n) atomicAdd(&g_hist[i % NUM_BUCKETS], 1);",
          "if (i < n) g_hist[i % NUM_BUCKETS] += 1;", "race count_atomic", "the race of lesson 19"),
    Fault("90's bound ignores the last warp", L90,
          "const bool in_warp = distance < WARP_SIZE && start + distance < n;",
          "const bool in_warp = distance < WARP_SIZE;", "kernels", "wrong last wave"),
    Fault("90 accepts an empty bucket", L90, "hist[b] >= 1 && hist[b] <= bound[b]",
          "hist[b] >= 0 && hist[b] <= bound[b]", "kernels",
          "an empty bucket is planted for the check"),
    Fault("91's rank is not stable", L91, "__popc(peers & ((1u << lane) - 1))",
          "__popc(peers >> lane) - 1", "self", "equal keys of a warp come out in reverse"),
    Fault("91 forgets the lower warps", L91, "for (int w = 0; w < warp; ++w) slot",
          "for (int w = 1; w < warp; ++w) slot", "self", "two elements get one slot"),
    Fault("91 reads the counts before all are there", L91,
          "if (leader) s_in_warp[warp][digit] = __popc(peers);\n    __syncthreads();",
          "if (leader) s_in_warp[warp][digit] = __popc(peers);", "race scatter_stable",
          "a missing barrier"),
    Fault("91 moves the cursor before all have read it", L91,
          "      out.index[slot] = in.index[i];\n    }\n    __syncthreads();\n",
          "      out.index[slot] = in.index[i];\n    }\n", "race scatter_stable",
          "a missing barrier"),
    Fault("91 does not wait for its cursors", L91,
          "      s_in_warp[warp][digit] = 0;\n    }\n    __syncthreads();\n",
          "      s_in_warp[warp][digit] = 0;\n    }\n", "race scatter_stable",
          "shows only where a block has more than one tile"),
    Fault("91 does not wipe a tile's counts", L91,
          "      s_in_warp[warp][digit] = 0;\n    }\n    __syncthreads();",
          "    }\n    __syncthreads();", "kernels", "the next tile starts from the last one's"),
    Fault("91's cursor is off by one", L91, "atomicAdd(&s_next[digit], __popc(peers));",
          "atomicAdd(&s_next[digit], __popc(peers) + 1);", "kernels", "a slot is left out"),
    Fault("91 waits for lanes that do not exist", L91,
          "lanes == WARP_SIZE ? ~0u : (1u << lanes) - 1", "lanes > 0 ? ~0u : 1u", "nothing",
          "in a short last warp neither the CPU runtime nor a GPU waits for lanes that do not "
          "exist"),
    Fault("91's table lies across", L91, "table[b * gridDim.x + blockIdx.x] = s_hist[b];",
          "table[blockIdx.x * NUM_BUCKETS + b] = s_hist[b];", "kernels", "wrong scan order"),
    Fault("91's scan forgets what came before", L91, "before += s_sum[blockDim.x - 1];",
          "before = s_sum[blockDim.x - 1];", "kernels",
          "right while one round of the block is enough"),
    Fault("91's scan overwrites its last sum too early", L91,
          "    __syncthreads();  // Everyone has read the last sum before the next round "
          "overwrites it.\n", "", "race scan_exclusive", "more than one round is needed to see it"),
    Fault("91's judge looks at keys alone", L91,
          "if (out.key[i] != reference.key[i] || out.index[i] != reference.index[i]) {",
          "if (out.key[i] != reference.key[i]) {", "kernels", "keys cannot show a lost order"),
    Fault("91 has a return before a barrier", L91,
          "  const Piece piece = piece_of_block(n);\n  for (int tile",
          "  const Piece piece = piece_of_block(n);\n"
          "  if (piece.begin + static_cast<int>(threadIdx.x) >= piece.end) return;\n"
          "  for (int tile", "kernels", "threads without an element must meet the others"),
]

LESSON_92 = [
    Fault("92 does not put right what came out of order", L92,
          "swapNeighbors(s_sorted, ", "if (n == 0) swapNeighbors(s_sorted, ", "kernels reversed",
          "then the loop cannot end; the runtime or the time limit ends it"),
    Fault("92's scan over lanes starts too late", L92, "if (lane >= step) value += left;",
          "if (lane > step) value += left;", "kernels", "wrong scan offset"),
    Fault("92 counts no head", L92, "const unsigned head = min(to_boundary, keys);",
          "const unsigned head = 0;", "kernels", "a wide load from an address that 16 does not "
          "divide, which the CPU forgives, and a tail that stays right: see `92 forgets its head`"),
    Fault("92 forgets its head", L92, "for (unsigned i = threadIdx.x; i < head;",
          "for (unsigned i = threadIdx.x + 1; i < head;", "kernels", "a key at the begin is lost"),
]

DAY_29 = [
    Fault("29 indexes with a signed byte", DAY29, "atomicAdd(&bins[input[i]], 1u);",
          "atomicAdd(&bins[static_cast<signed char>(input[i])], 1u);", "kernels",
          "values from 128 on are lost", fast=True),
    Fault("29 indexes with a signed byte in shared memory", DAY29,
          "atomicAdd(&s_bins[input[i]], 1u);",
          "atomicAdd(&s_bins[static_cast<signed char>(input[i])], 1u);", "kernels",
          "values from 128 on are lost"),
    Fault("29 lacks the barrier after zeroing", DAY29, ZEROED_29, "",
          "race histogramPrivate", "a missing barrier"),
    Fault("29 lacks the barrier before merging", DAY29, COUNTED_29, "", "race histogramPrivate",
          "a missing barrier"),
    Fault("29 zeroes one bin a thread", DAY29,
          "for (int bin = threadIdx.x; bin < kBins; bin += blockDim.x) s_bins[bin] = 0;",
          "if (threadIdx.x < kBins) s_bins[threadIdx.x] = 0;", "kernels",
          "half the bins with 128 threads"),
    Fault("29's sum drops the tail", DAY29,
          "for (std::size_t i = thread; i < size; i += stride) sum += input[i];",
          "for (std::size_t i = thread; i + stride <= size; i += stride) sum += input[i];", "self",
          "that is what the 611 bytes are for"),
    Fault("29 leaves a partial unwritten", DAY29, "  partials[thread] = sum;",
          "  if (sum > 0) partials[thread] = sum;", "kernels", "the poison stays"),
    Fault("29's bins are too narrow", DAY29, "using Bins = std::vector<unsigned int>;",
          "using Bins = std::vector<unsigned short>;", "build", "another type on the device"),
    Fault("29 times more runs than its bins can hold", DAY29, "constexpr int kTimedRuns = 10;",
          "constexpr int kTimedRuns = 100;", "build full", "a static_assert knows the bound",
          fast=True),
    Fault("29 does not zero the bins before timing", DAY29,
          "  zeroBins(data);\n  const float ms =", "  const float ms =", "self",
          "the counts after timing are those of one run too many"),
    Fault("29 does not check a launch", DAY29,
          "  histogramPrivate<<<blocks, threads>>>(data.d_input, data.size, data.d_bins);\n"
          "  CUDA_CHECK(cudaGetLastError());\n",
          "  histogramPrivate<<<blocks, threads>>>(data.d_input, data.size, data.d_bins);\n",
          "tests test_known_troubles", "every launch must be checked"),
    Fault("29's check compares with itself", DAY29, "if (got[bin] == want) continue;",
          "if (want == want) continue;", "kernels", "a wrong bin is planted for the check"),
    Fault("29 times without synchronization", DAY29,
          "  CUDA_CHECK(cudaEventSynchronize(stop));\n", "", "tests test_common_blocks",
          "the block differs from its home in common/"),
    Fault("29 prints a time of zero", DAY29, "if (!(total_ms > 0.0f)) {",
          "if (total_ms < 0.0f) {", "tests test_common_blocks",
          "the block differs from its home in common/"),
    Fault("29's reference skips a byte", DAY29, "for (unsigned char byte : bytes) ++bins[byte];",
          "for (std::size_t i = 1; i < bytes.size(); ++i) ++bins[bytes[i]];", "self",
          "all bins together must be as many as there are bytes"),
    Fault("29.2 forgets the head", FLOOR,
          "  if (thread < parts.head) atomicAdd(s_column + input[thread] * kCopies, 1u);\n", "",
          "kernels", "input pointers are off by 0 to 15 bytes"),
    Fault("29.2 reads one byte behind the end", FLOOR,
          "atomicAdd(s_column + input[size - 1 - thread] * kCopies, 1u);",
          "atomicAdd(s_column + input[size - thread] * kCopies, 1u);", "kernels",
          "the guard's value is counted"),
    Fault("29.2 does not zero the next table", FLOOR,
          "for (int b = threadIdx.x; b < kBins; b += blockDim.x) next_bins[b] = 0;", "", "kernels",
          "the second call starts from garbage"),
    Fault("29.2 sums some of the copies", FLOOR, "for (int c = 0; c < kQuarter; ++c) {",
          "for (int c = 0; c < (kQuarter + 1) / 2; ++c) {", "kernels",
          "counts of the other lanes are lost"),
    Fault("29.2 lacks the barrier after zeroing", FLOOR,
          "  __syncthreads();  // No one counts before the table is zero.\n", "",
          "race histogramVectors<32>", "a missing barrier"),
]

TOOLS = [
    Fault("the transcript check ignores the exit status", "tools/check_transcript.py",
          "    elif outcome.status != 0:\n", "    elif False:\n", "tests test_check_transcript",
          "a failure must not pass"),
    Fault("the transcript check ignores signals", "tools/check_transcript.py",
          "    elif outcome.status < 0:\n", "    elif outcome.status < -99:\n",
          "tests test_check_transcript", "a crash must not pass"),
    Fault("the transcript check accepts unknown lines on stderr", "tools/check_transcript.py",
          "        if not fits:\n            problems.append(f\"stderr has",
          "        if False:\n            problems.append(f\"stderr has",
          "tests test_check_transcript", "stderr decides too"),
    Fault("a skip passes", "tools/check_transcript.py",
          "return Verdict(SKIPPED, [f\"skipped: {visible(reason)}\"])",
          "return Verdict(PASSED, [f\"skipped: {visible(reason)}\"])",
          "tests test_check_transcript", "skipped is never passed"),
    Fault("a mask takes nan", "tools/check_transcript.py",
          "        if kind == \"real\" and not NUMBER.fullmatch(value):\n",
          "        if kind == \"real\" and not value:\n", "tests test_check_transcript",
          "NaN is no time"),
    Fault("a mask takes any range", "tools/check_transcript.py",
          "return None if low <= number <= high else f\"is not in {low:g}..{high:g}\"",
          "return None", "tests test_check_transcript", "a racy total has bounds"),
    Fault("the diff hides trailing blanks", "tools/check_transcript.py",
          "    body = line.rstrip(\" \")\n", "    line = body = line.rstrip(\" \")\n",
          "tests test_check_transcript", "what the eye would miss is written out"),
    Fault("an accepted transcript loses its masks", "tools/check_transcript.py",
          "            if line.text not in remaining:\n", "            if False:\n",
          "tests test_check_transcript", "accept refuses then"),
    Fault("a process that was left behind is forgotten", "tools/check_transcript.py",
          "                    if now - ended_at > DRAIN_SECONDS:\n",
          "                    if now - ended_at > 3600:\n", "tests test_bad_input",
          "a program that forks and hangs"),
    Fault("a flood of output is kept", "tools/check_transcript.py",
          "if len(streams[key.data]) > limit:", "if len(streams[key.data]) > 1e15:",
          "tests test_bad_input", "100 MB are not a transcript"),
    Fault("two lessons may have one id", "tools/course.py", "            if key in seen:\n",
          "            if False:\n", "tests test_course", "which one would 19 be?", fast=True),
    Fault("a header without Run is accepted", "tools/course.py",
          "        if len(named[name]) != 1:\n", "        if len(named[name]) > 1:\n",
          "tests test_course", "every lesson says how it is run"),
    Fault("a copy of a common block may differ", "tools/tests/test_common_blocks.py",
          "        if copy != course.common_block(homes[name], name):\n", "        if False:\n",
          "tests test_common_blocks", "a check that cannot fail proves nothing"),
    Fault("stale evidence is accepted", "tools/check_evidence.py",
          "    if not re.fullmatch(r\"[0-9a-f]{40}\", commit):\n", "    if False:\n",
          "tests test_check_evidence", "a commit must be named"),
    Fault("evidence may be faster than the card", "tools/check_evidence.py",
          "    if rate > limit:\n", "    if rate > 1e9:\n", "tests test_check_evidence",
          "a missing synchronization shows as such"),
    Fault("evidence may hold nan and inf", "tools/check_evidence.py",
          "        problems.append(f\"'{match[0]}' stands among the figures\")\n",
          "        pass\n", "tests test_check_evidence", "no inf GB/s is published"),
    Fault("evidence may hold a wrong quotient", "tools/check_evidence.py",
          "    return low - slack <= evidence.number(result) <= high + slack\n",
          "    return low - slack <= high + slack\n", "tests test_check_evidence",
          "speed-ups are recomputed"),
    Fault("evidence may come from the CPU", "tools/record_evidence.py",
          "        raise EvidenceError(\"the kernels ran on the CPU; evidence is for runs on a "
          "GPU\")\n", "        pass\n", "tests test_record_evidence",
          "CPU times are never results"),
    Fault("evidence is written over", "tools/record_evidence.py", "        if path.exists():\n",
          "        if False:\n", "tests test_record_evidence", "evidence is never written over"),
    Fault("a page that differs is called in step", "tools/sync_docs.py",
          "    if options.check and differing:\n", "    if False:\n", "tests test_sync_docs",
          "prose holds no second copy"),
    Fault("a link may be too long", "tools/explorer_link.py",
          "        if len(link) <= MAX_LENGTH:\n", "        if True:\n",
          "tests test_explorer_link", "such a link does not open"),
    Fault("a failed lesson is counted as run", "tools/lessons.py",
          "    return 1 if failed or not ran else 0\n", "    return 0\n", "tests test_lessons",
          "the exit status counts"),
    Fault("no tests at all are a success", "tools/lessons.py",
          "    return 1 if failed or not tally.count(\"passed\") else 0\n",
          "    return 1 if failed else 0\n", "nothing",
          "a run without a single passed test cannot be had from outside: the build step itself "
          "is counted as a test"),
]

FAULTS = BASELINES + LESSON_20 + LESSON_21 + LESSON_90_AND_91 + LESSON_92 + DAY_29 + TOOLS

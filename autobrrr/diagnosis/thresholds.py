"""The limits that decide, in one place. Shares are 0-1 of the step, spreads are IQR / median.

Most come from a study of 29 model kinds and 204 probes on a loaded machine, in which these
limits named nothing wrongly.
"""

from __future__ import annotations

from autobrrr.records import busy_words

NAMED_AT = 0.5  # a signal speaks for a regime
EXCLUDED_AT = 0.25  # a signal speaks against it
CONFIRMED_AT = 0.4  # of the stacks, which scatter: beside a clock that says half
DISPATCH_AT = 0.35  # of the step, by operators times the least that one costs: it confirms overhead
LEAD = 0.15  # what a regime must be ahead of the next one
OVERHEAD_TIMES = 1.75  # times the next part, for overhead, which is an estimate: a step minus its kernels

COLLECTIVE_STEPS = 4  # in which collectives were timed
RANK_LEAD = 0.10  # of the step: the slowest rank's own work takes so much longer than any other's
RANK_WAITS_LITTLE = 0.10  # of the step, for it to be the slowest of ranks of which not all were timed
REDUCED_AGAIN = 0.10  # of the steps have collectives after several backwards
COMPARED_STEPS = 8  # that all ranks have timed
RANK_LAST_IN = 0.75  # of the steps, for a rank to be late always
RANK_IN_PHASE = 0.75  # of what it is late by, for a phase to be named
RANK_BURST = 0.25  # of the step: now and then a rank is late by so much more than it usually is,
RANK_BURST_SPREADS = 3.0  # ... and by so many times the spread of the middle half of any rank's steps,
RANK_BURSTS = 4  # ... so many times,
RANK_BURSTS_FEW = 0.25  # ... in no more of its steps,
RANK_BURSTS_ALONE = 0.9  # ... of all such steps of any rank; as many of them in one phase,
RANK_BURSTS_COST = 0.05  # ... and it takes so much of the time
MORE_DATA = 0.05  # a batch is clearly larger

LONG_LOOKS = 8  # at places in which long steps were, for them to be named
TREND_POINTS = 10
ALONE_AT = 0.2  # cores that others take at most, for longer steps to be the job's own doing
GROWS_AT = 0.10  # of a step, over the steps that were seen
MEMORY_GROWS_BYTES, MEMORY_RISES = 16 << 20, 0.6  # over the looks; of them, those that find more than before
MEMORY_RISES_ALWAYS = 0.9  # the same, if looks during our measurements count too
PERIODIC_TIMES = 1.4  # the usual step
PERIODS, REGULAR_AT = 3, 0.8  # gaps between long steps, of one length
SETTING_AT = 0.05  # of what a setting is of: less is not worth an edit
WHERE_AT = 0.03  # of the step: a line of the user's is worth telling
MOST_WHERE = 5
OWN_WORK_AT = 0.10  # of the step: code of their own comes before the lines that only run the model
GARBAGE_SHOWN_AT = 0.01
GARBAGE_AT = 0.05  # of the step: below it, keeping the collector out of the way was worth nothing on 46 jobs

LIMIT_AT = 0.55  # of the step: who takes it limits it, whatever the regimes inside are
LIMIT_FIRM_AT = 0.65
LEAST_SHOWN = 0.05  # of the step, for a part to be listed

# A device's timeline. They were set on 45 public traces, whose limits had been written down before.
KERNELS_NAMED_AT, KERNELS_RIVAL = 0.6, 0.5  # kernels are what a step should be; nothing else has half as much
SHARED_NAMED_AT = 0.4  # of a device that two jobs use in turn, each waits for half of the time
UNEXPLAINED_AT = 0.4  # of the device's time: more than anything else, it forbids any name
TIMELINE_EXCLUDED_AT = 0.15  # of the device's time, which is known to the nanosecond
FEW_KERNELS = 100
QUEUE_EMPTY_AT, QUEUED_AT = 0.5, 0.2  # of kernels, begun right after their launch
QUEUE_NS = 100_000  # from a launch to its kernel: some devices take tens of microseconds without a queue
HOST_BUSY_AT, HOST_FREE_AT = 0.6, 0.3  # of the span, launching threads
BLOCKED_AT, NEVER_AT = 0.15, 0.05  # of the span, in calls that wait; that little is no regime
FULL_AT, FROM_CACHE_AT = 0.5, 1.3  # of a roof: what compute or memory must reach; no memory is faster
SHORT_KERNEL_NS = 10_000
WAITS_TIMES = 1_000  # no message of one size varies so much by itself
RECURS_FROM, LARGEST_OF_RECURRING = 5, 0.5  # long stretches of the host: fewer are no habit of the job
SLICES_FROM, SLICE_NS = 10, 200_000  # equal gaps: schedulers give a process a millisecond or more

BUSY_AT = busy_words.BUSY_AT  # training thread ready without a CPU: confidence low, shares less the delay
OWN_DELAY_SAMPLES = 5  # looks at the machine that make the delay of the job's own making firm
WITHHELD_AT = 0.60  # the same: no verdict at all

STEP_SPREAD = 0.25
KERNEL_SPREAD = 0.15  # IQR of kernel work / step
MANY_STEPS = 12  # kernel work that varies more is good enough where so many show its mean, with an error of
KERNEL_ERROR = 0.06  # of the mean kernel work, over the mean step
TRACED_OVER_PLAIN = 0.95  # a traced step that is faster than a plain one did less: a lower bound of kernels
TRACED_LEAST = 0.60  # ... or so much less that the two can't be compared
PARTS_AGREE = 2.0  # the phases' means together, over the median step: at most this factor off
TRACED_STEPS = 3  # and as many plain ones
OPERATION_SPREAD = 0.25  # steps that dispatch different work can't be compared

LINEAR_ERROR = 0.10
REPLAYS_AGREE = 0.15  # of the fastest replay: so near is the lower quartile of a size that counts
PROBE_POINTS = 3
LONG_STEP_NS = 100_000_000
TWO_SIZES_ERROR = 0.10  # of the fixed share, by B and 2B alone: no third size checks their line

ROOF_LOW = 0.30  # of the nearer roof: below it a kernel is underfilled
DISPATCH_NS = 10_000  # of one operator under the profiler, an upper bound
KERNEL_NS = 20_000  # of one call: with less, what an operator takes is mostly getting there and back;
KERNEL_DISPATCHES = 12.0  # ... or less than so many times what dispatching one costs here, where that is more
LONG_CALL_NS = 100_000  # of one call: a longer one that is slow is not slow for being small
SMALL_CALL_NS = 10_000  # of memory traffic in one call: with less, a slow kernel is a small one
TIMES_THE_OTHER = 2.0  # of two kinds of kernels, what the leading one takes: less is a mixture
EXPLAINED_AT = 0.5  # of the kernels that move tensors, by bytes and page faults
PROBE_FLAT = 0.5  # fixed share of the probe from which on it is flat
PROBE_GROWS = 0.25  # ... up to which it grows with the batch
PEAKS_DISTURBED_AT = 0.60  # of the time that the peaks' own threads waited for a core: no use at all

SAMPLED_STEPS = 4
SAMPLED_STEPS_FIRM = 8
FRAME_SAMPLES = 20
FRAME_SAMPLES_FIRM = 50
STEPS_FIRM = 20

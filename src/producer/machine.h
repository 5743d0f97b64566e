/* SPDX-License-Identifier: Apache-2.0 */
/* What this process may really use of the machine. */
#ifndef TSP_MACHINE_H
#define TSP_MACHINE_H

#include <stdint.h>

/* CPUs by the affinity mask and the cgroup's quota (version 1 or 2), rounded up; at least 1. */
uint32_t tsp_machine_cpus(void);

/* Bytes that can still be taken: the smaller of MemAvailable and what the cgroup's limit leaves. */
uint64_t tsp_machine_memory_bytes(void);

/* Descriptors that this process can still open. */
uint64_t tsp_machine_descriptors(void);

#endif

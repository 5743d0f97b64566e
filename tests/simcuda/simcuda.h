/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a test may ask of the simulated CUDA driver, beside the driver's own functions.
 *
 * The simulated driver is a libcuda.so.1 for machines without a GPU. It has the rules of the real one that code trips
 * over, stricter where the real one leaves things undefined: device memory cannot be read by the host, streams run
 * late and apart from each other, memory is shared between processes by IPC handles and by descriptors, errors stick.
 * It shows that code keeps the rules; it does not show that the real driver has them. Whatever has only run on it is
 * called simulated.
 *
 * Environment, read by cuInit, all optional:
 *
 *     SIMCUDA_DEVICES=N           devices (1); CUDA_VISIBLE_DEVICES=1,0 chooses and orders them,
 *                                 and a UUID ("MIG-...") one of them
 *     SIMCUDA_MEMORY=BYTES        memory of each device, for each process (1 GiB)
 *     SIMCUDA_DELAY_US=N          each piece of work on a stream waits 0 to N microseconds first (0)
 *     SIMCUDA_SEED=N              of those delays (1)
 *     SIMCUDA_FAIL=NAME:K:CODE,.. the K-th call of NAME (as exported; * is any function) answers CODE, or, where CODE
 *                                 is "kill", kills the process
 *     SIMCUDA_ATTRIBUTES=A=V,..   device attributes by number (133=1: under MPS; 102=0: no VMM)
 *     SIMCUDA_PEERS=none          no device can reach another's memory
 *     SIMCUDA_MIG=K               the devices are MIG instances number K: UUID and name say so
 *     SIMCUDA_STRICT=1            a violation aborts the process instead of being counted
 *     SIMCUDA_REPORT=FILE         at exit, a line for each thing that was not given back, and for violations, goes
 * there
 */
#ifndef SIMCUDA_H
#define SIMCUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIMCUDA_API __attribute__((visibility("default")))

/* Wrongs that the real driver leaves undefined, or that it cannot see. */
enum simcuda_violation {
    SIMCUDA_EARLY_REUSE,       /* the source of a copy was written before the copy had run */
    SIMCUDA_BAD_ADDRESS,       /* work on memory that is not mapped, closed, or without access */
    SIMCUDA_READ_ONLY_WRITE,   /* work wrote to a read-only mapping */
    SIMCUDA_DOUBLE_FREE,       /* something was freed or closed that is not there */
    SIMCUDA_FREE_BEFORE_CLOSE, /* cuMemFree while another process has the memory open */
    SIMCUDA_VIOLATIONS,
};

/* Calls so far of one function, by its exported name ("cuMemAlloc_v2"); of all of them with "*". */
SIMCUDA_API unsigned long simcuda_calls(const char *function);

/* The `nth` call from now (1: the next) of `function` ("*": of any) answers `result`. nth 0: none does. */
SIMCUDA_API void simcuda_fail(const char *function, unsigned long nth, int result);

/* The function whose call was made to fail last; "" at first. */
SIMCUDA_API const char *simcuda_failed(void);

/* From now on every call on the device's context answers `error`, as after a fault of a kernel or of the card. */
SIMCUDA_API void simcuda_break(int device, int error);

/* While held, streams begin no work. */
SIMCUDA_API void simcuda_hold(bool held);

/* Pieces of work that were given to streams and have not been done. */
SIMCUDA_API unsigned long simcuda_pending(void);

SIMCUDA_API void simcuda_delay(unsigned max_us);

SIMCUDA_API unsigned long simcuda_violations(enum simcuda_violation which);

/* Asynchronous copies that were not asynchronous, since their host memory is not registered. */
SIMCUDA_API unsigned long simcuda_pageable_copies(void);

/* What is not given back yet: memory, mappings, handles, streams, events, registrations, modules, contexts. */
SIMCUDA_API unsigned long simcuda_live(void);

/*
 * Kernels. The simulated driver cannot run PTX: a module's text says which kernels it has, and a table says what they
 * do. Those of this project are in it already (known.c). The function runs on a worker of the stream. It reaches the
 * memory behind a device address only through simcuda_at, which answers NULL, and has the launch fail like the real
 * one, where the address is not the kernel's to use: return then.
 */
#define SIMCUDA_PARAMS_MAX 16

struct simcuda_launch {
    unsigned grid[3];
    unsigned block[3];
    void *params[SIMCUDA_PARAMS_MAX]; /* to copies of the arguments, which are 8 bytes each at most */
    struct sim_launch *own;
};

typedef void simcuda_kernel(struct simcuda_launch *launch);

/* `name` is not copied. A second kernel of a name takes the place of the first. */
SIMCUDA_API void simcuda_register(const char *name, simcuda_kernel *kernel, unsigned n_params,
                                  const size_t param_bytes[]);

SIMCUDA_API void *simcuda_at(struct simcuda_launch *launch, uint64_t address, size_t bytes, bool write);

#endif

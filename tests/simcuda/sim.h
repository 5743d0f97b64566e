/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the simulated driver: its one state and what its files need of each other.
 *
 *     core.c      start, devices, contexts, the end of the process
 *     control.c   environment, counted calls, injected errors, violations
 *     memory.c    addresses and what lies behind them; allocation; registered host memory
 *     ipc.c       memory of other processes by 64-byte handles
 *     vmm.c       virtual memory management, with descriptors
 *     stream.c    streams, their workers, copies
 *     event.c     events
 *     kernel.c    modules and launches
 *     known.c     the kernels of this project, with known_mlp.c
 *
 * Device memory is a memfd, so that other processes can have it. It is mapped twice: nowhere readable at the device
 * address (the host that follows it is killed), and at `data`, which only workers use.
 *
 * One lock protects everything. Workers do the work itself without it: ThreadSanitizer then sees a worker and a host
 * thread that use the same memory without having waited for each other, as a copy engine and a host thread would.
 */
#ifndef SIM_H
#define SIM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ipc/cuda_api.h"
#include "simcuda.h"

enum {
    SIM_DEVICES_MAX = 16,
    SIM_BLOCK = 2 << 20,   /* what memory is made of, and what IPC shares */
    SIM_TRAILER = 4096,    /* behind the data in every memfd: who has it open */
    SIM_OPENERS_MAX = 256, /* of one piece of memory */
};

#define SIM_SHARED_MAGIC UINT64_C(0x53494d4355444131)

/* The last page of a memfd: shared by the processes that map it. */
struct sim_shared {
    uint64_t magic;
    uint64_t nonce;
    int physical_device;
    int mig;
    _Atomic int openers[SIM_OPENERS_MAX]; /* process ids; 0: none */
};

/* Physical memory of a device, as this process sees it. Freed with its last reference. */
struct sim_physical {
    unsigned refs;
    int device;
    int fd;
    size_t bytes;
    uint8_t *data;
    struct sim_shared *shared;
    bool own;         /* made here: it counts against the limit */
    bool shareable;   /* made with a handle type: it can be exported as a descriptor */
    uint64_t address; /* of memory that was allocated or opened: where it begins */
    size_t used;      /* of a block that small allocations share: how far it is given out */
};

enum sim_range_kind {
    SIM_ALLOCATED,
    SIM_OPENED, /* by an IPC handle */
    SIM_RESERVED,
    SIM_MAPPED, /* inside a reserved one */
};

/* Addresses that mean something. */
struct sim_range {
    struct sim_range *next;
    enum sim_range_kind kind;
    uint64_t address;
    size_t bytes;
    struct tsi_cu_context *context; /* of an allocated or opened one */
    struct sim_physical *physical;
    size_t offset; /* in physical */
    int access;    /* TSI_CU_ACCESS_* */
    unsigned opened;
    uint64_t inode; /* of an opened one: which memory it is */
};

struct sim_registration {
    struct sim_registration *next;
    struct tsi_cu_context *context; /* NULL: portable */
    uintptr_t address;
    size_t bytes;
};

struct tsi_cu_context {
    int device; /* ordinal */
    unsigned retained;
    int error; /* sticks */
    struct tsi_cu_stream *null_stream;
};

struct sim_event_count {
    _Atomic uint64_t recorded;
    _Atomic uint64_t passed;
};

struct tsi_cu_event {
    struct tsi_cu_context *context;
    unsigned refs; /* its owner, and work that names it */
    struct sim_event_count own;
    struct sim_event_count *count; /* `own`, or in memory that processes share: */
    int fd;                        /* its descriptor; -1: not shared */
};

enum sim_function {
#define SIM_FUNCTION(name, suffix, need, params) SIM_##name,
    TSI_CUDA_FUNCTIONS(SIM_FUNCTION)
#undef SIM_FUNCTION
    SIM_FUNCTIONS,
};

enum sim_kind {
    SIM_KIND_MEMORY,
    SIM_KIND_MAPPING,
    SIM_KIND_HANDLE,
    SIM_KIND_STREAM,
    SIM_KIND_EVENT,
    SIM_KIND_REGISTRATION,
    SIM_KIND_MODULE,
    SIM_KIND_CONTEXT,
    SIM_KINDS,
};

struct sim {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool started;
    bool forked; /* this is the child of a process that had started the driver */
    bool down;   /* the process is exiting */

    int n_devices;
    int physical_device[SIM_DEVICES_MAX]; /* of each ordinal */
    size_t memory_bytes;
    size_t used_bytes[SIM_DEVICES_MAX];
    int mig; /* 0: no MIG instance */
    bool peers;
    struct tsi_cu_context contexts[SIM_DEVICES_MAX];

    struct sim_range *ranges;
    struct sim_registration *registrations;
    unsigned long live[SIM_KINDS];

    bool held;
    unsigned delay_us;
    uint64_t seed;
    unsigned n_streams; /* ever made */
    unsigned long pending;
    unsigned long pageable_copies;
};

extern struct sim sim;

/* Every function of the driver, as the table of the code under test declares it, but for its version. */
#define SIM_PROTOTYPE(name, suffix, need, params) SIMCUDA_API int name##suffix params;
TSI_CUDA_FUNCTIONS(SIM_PROTOTYPE)
#undef SIM_PROTOTYPE

/* --- core.c */

/*
 * Begins a call: counts it, and takes the lock. The answer other than SUCCESS is the call's: the driver has not
 * started, an error was asked for, the context is missing or broken. With `context_out` the call needs a context.
 */
int sim_enter(enum sim_function function, struct tsi_cu_context **context_out);
int sim_leave(int result); /* gives the lock back; returns its argument */

/*
 * The same for calls that give something back: those do it whatever the answer. false: there is nothing to give back,
 * *result_out is the answer and the lock is not held.
 */
bool sim_enter_free(enum sim_function function, struct tsi_cu_context **context_out, int *result_out);

/* --- control.c */

void sim_control_read(void); /* the environment */
int sim_control_count(enum sim_function function);
void sim_violation(enum simcuda_violation which);
void sim_control_report(void);
int sim_attribute(int attribute);

/* --- memory.c; the lock is held */

struct sim_physical *sim_physical_create(int device, size_t bytes);
struct sim_physical *sim_physical_open(int fd); /* what another made; takes fd over, also when it fails */
void sim_physical_unref(struct sim_physical *physical);

uint64_t sim_address_take(size_t bytes); /* 0: none */
void sim_address_give(uint64_t address, size_t bytes);

struct sim_range *sim_range_add(enum sim_range_kind kind, uint64_t address, size_t bytes);
struct sim_range *sim_range_at(enum sim_range_kind kind, uint64_t address); /* which begins there */
void sim_range_remove(struct sim_range *range);

/*
 * What lies behind [address, address + bytes) for work of a context, with a reference to it; NULL: nothing that may be
 * used so, and the violation is counted.
 */
uint8_t *sim_translate(const struct tsi_cu_context *context, uint64_t address, size_t bytes, bool write,
                       struct sim_physical **physical_out);

bool sim_is_registered(const struct tsi_cu_context *context, const void *host, size_t bytes);

/* --- stream.c; the lock is held */

struct sim_launch; /* kernel.c's */

void sim_drain(struct tsi_cu_context *context);            /* waits until its streams are empty */
void sim_fault(struct tsi_cu_context *context, int error); /* from now on every call answers it */
int sim_stream_launch(struct tsi_cu_context *context, struct tsi_cu_stream *stream, struct sim_launch *launch);

/* Records that number of the event, or waits for it, behind what the stream has to do. */
int sim_stream_event(struct tsi_cu_context *context, struct tsi_cu_stream *stream, bool record,
                     struct tsi_cu_event *event, uint64_t number);
int sim_stream_device(const struct tsi_cu_context *context, const struct tsi_cu_stream *stream);

/* --- event.c; the lock is held */

void sim_event_unref(struct tsi_cu_event *event);
void sim_event_pass(struct tsi_cu_event *event, uint64_t number);
void sim_event_await(struct tsi_cu_event *event, uint64_t number); /* or until its context is broken */

/* --- ipc.c; the lock is held */

/* A handle that means a descriptor of this process; false: it cannot be made. */
bool sim_handle_make(int fd, uint64_t nonce, uint64_t offset, struct tsi_cu_ipc_handle *handle_out);

/* The descriptor that it means, opened here. */
int sim_handle_open(const struct tsi_cu_ipc_handle *handle, int *fd_out);

/* --- kernel.c; without the lock */

int sim_launch_run(struct sim_launch *launch, struct tsi_cu_context *context);
void sim_launch_free(struct sim_launch *launch);

#endif

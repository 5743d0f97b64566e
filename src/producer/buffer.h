/* SPDX-License-Identifier: Apache-2.0 */
/* A buffer that is reused from picture to picture and only grows: after warm-up nothing is allocated. For the decode.
 */
#ifndef TSP_BUFFER_H
#define TSP_BUFFER_H

#include <stdbool.h>
#include <stdlib.h>

/* Starts as {0}; data is the owner's to free. */
struct tsp_buffer {
    void *data;
    size_t bytes;
};

/* Makes it at least `bytes` long; its content is lost. False: no memory, and the buffer is empty. */
static inline bool tsp_buffer_reserve(struct tsp_buffer *buffer, size_t bytes)
{
    if (bytes <= buffer->bytes)
        return true;
    size_t room = bytes + bytes / 4; /* sizes vary: few pictures shall need a new one */
    free(buffer->data);
    buffer->data = malloc(room);
    buffer->bytes = buffer->data ? room : 0;
    return buffer->data != NULL;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs for tests that /usr/bin/python3 makes at test time (with NumPy and Pillow), in a folder of their own. */
#ifndef TEST_INPUTS_H
#define TEST_INPUTS_H

#include <stddef.h>
#include <stdint.h>

/* A new empty folder, once per process; it is removed, with all that is in it, when the process exits. */
const char *inputs_folder(void);

/* Runs tests/SCRIPT with arguments, shell syntax. Ends the process with status 77 (skipped) without NumPy or Pillow. */
void inputs_python(const char *script_and_arguments);

/* "FOLDER/NAME", which stays until the process exits. */
const char *inputs_path(const char *folder, const char *name);

/* The content of a file and a final 0; the caller's to free. */
uint8_t *inputs_read(const char *path, size_t *len_out);

void inputs_write(const char *path, const void *data, size_t len);

#endif

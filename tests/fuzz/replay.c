/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target over the files it is given, where there is no libFuzzer: its corpus as an ordinary test. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    INPUT_MAX = 1 << 20,
};

int main(int argc, char **argv)
{
    uint8_t *input = malloc(INPUT_MAX);

    for (int i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "rb");

        if (file == NULL || input == NULL) {
            perror(argv[i]);
            return 1;
        }
        LLVMFuzzerTestOneInput(input, fread(input, 1, INPUT_MAX, file));
        fclose(file);
    }
    free(input);
    printf("%d inputs\n", argc - 1);
    return argc > 1 ? 0 : 1;
}

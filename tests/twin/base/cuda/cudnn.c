/* cuDNN 8.2.0 as its header counts: major * 1000 + minor * 100 + patch. */
unsigned long cudnnGetVersion(void) { return 8200; }

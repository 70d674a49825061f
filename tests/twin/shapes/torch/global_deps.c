/* As in torch: a library that only names others as needed. */
int main_of_global_deps(void) { return 0; }

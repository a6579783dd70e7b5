"""What users of elastic jobs of `horovod.run` need: the classes in `discovery`."""

"""Where em stops on one machine: writers, lists, the journal, workers, connections."""

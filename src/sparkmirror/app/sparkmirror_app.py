"""What spark-submit runs: `spark-submit $(sparkmirror app-file) run mm2.properties` is `sparkmirror run mm2.properties`."""

from sparkmirror.cli import main

if __name__ == "__main__":
    main()
